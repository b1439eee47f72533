"""SCRAM credentials of users: describe (50), alter (51)."""

from headwater.wire.schema import Struct, i8, i16, i32, since


class DescribeUserScramCredentialsRequest(Struct, api_key=50, versions="0", flexible="0+"):
    """Which credentials do these users have; null or an empty list means all users."""

    class UserName(Struct):
        """One user."""

        name: str = ""

    users: list[UserName] | None = since(default=[])


class DescribeUserScramCredentialsResponse(Struct, api_key=50, versions="0", flexible="0+"):
    """The mechanisms and iterations of each user; never salts or keys."""

    class DescribeUserScramCredentialsResult(Struct):
        """One user."""

        user: str = ""
        error_code: i16 = 0
        error_message: str | None = None
        credential_infos: "list[DescribeUserScramCredentialsResponse.CredentialInfo]" = since(
            default=[]
        )

    class CredentialInfo(Struct):
        """A credential of the user."""

        mechanism: i8 = 0
        iterations: i32 = 0

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
    results: list[DescribeUserScramCredentialsResult] = since(default=[])


class AlterUserScramCredentialsRequest(Struct, api_key=51, versions="0", flexible="0+"):
    """Store and delete credentials; the password itself is never sent."""

    class ScramCredentialDeletion(Struct):
        """A credential to delete."""

        name: str = ""
        mechanism: i8 = 0

    class ScramCredentialUpsertion(Struct):
        """A credential to store."""

        name: str = ""
        mechanism: i8 = 0
        iterations: i32 = 0
        salt: bytes = b""
        salted_password: bytes = b""

    deletions: list[ScramCredentialDeletion] = since(default=[])
    upsertions: list[ScramCredentialUpsertion] = since(default=[])


class AlterUserScramCredentialsResponse(Struct, api_key=51, versions="0", flexible="0+"):
    """The result for each user."""

    class AlterUserScramCredentialsResult(Struct):
        """One user."""

        user: str = ""
        error_code: i16 = 0
        error_message: str | None = None

    throttle_time_ms: i32 = 0
    results: list[AlterUserScramCredentialsResult] = since(default=[])

"""`ssl.principal.mapping.rules`: the name of a user from the subject of a certificate.

Rules are separated by commas, and the first that matches counts: `DEFAULT` keeps the whole subject,
`RULE:pattern/replacement/[L|U]` needs a pattern that matches all of it. `$1` in the replacement is
the first group, `\\/` a slash; L and U change the case of the result.
"""

import re
from typing import NamedTuple

from headwater.config.keys import ConfigError
from headwater.config.linear_regex import LinearRegex

MAX_SUBJECT = 2048
"""No rule is tried on a longer subject."""

_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)\s*(?:,\s*|\Z)")
_DEFAULT = re.compile(r"DEFAULT\s*(?:,\s*|\Z)")
_REFERENCE = re.compile(r"\$(\d)")


class MappingRule(NamedTuple):
    """One rule; without a pattern it is DEFAULT."""

    pattern: LinearRegex | None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the name for a subject; None if the rule does not match it."""
        if self.pattern is None:
            return subject
        groups = self.pattern.match_whole(subject)
        if groups is None:
            return None

        def group(found: re.Match[str]) -> str:
            number = int(found[1])
            return groups[number] if number < len(groups) else found[0]

        name = _REFERENCE.sub(group, self.replacement).replace("\\/", "/")
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Parse rules; ConfigError for one that cannot be understood."""
    rules, at, text = [], 0, text.strip()
    while at < len(text):
        found = _DEFAULT.match(text, at)
        if found is not None:
            rules.append(MappingRule(None))
        else:
            found = _RULE.match(text, at)
            if found is None:
                raise ConfigError(
                    f"{text[at:]!r} is not a rule: write RULE:pattern/replacement/[L|U] or DEFAULT"
                )
            pattern = LinearRegex(found[1].replace("\\/", "/"))
            rules.append(MappingRule(pattern, found[2], found[3]))
        at = found.end()
    return tuple(rules) or (MappingRule(None),)


def rules_problem(text: str) -> str | None:
    """Why the rules cannot be used; None if they can."""
    try:
        parse_rules(text)
    except ConfigError as problem:
        return problem.message
    return None


def name_of_subject(rules: tuple[MappingRule, ...], subject: str) -> str | None:
    """Return the name for a subject; None if no rule matches it."""
    if len(subject) > MAX_SUBJECT:
        return None
    return next((name for rule in rules if (name := rule.apply(subject)) is not None), None)

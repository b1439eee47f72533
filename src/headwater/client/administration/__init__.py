"""What an admin can do, one noun per file; `headwater.client.admin` puts them together."""

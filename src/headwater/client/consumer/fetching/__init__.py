"""Reading ahead from the brokers: requests, sessions, and the records they bring."""

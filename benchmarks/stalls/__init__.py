"""How long one client's request holds up all others, and how much memory it takes."""

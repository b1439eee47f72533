"""The controller's room: who is alive, which topics there are, who leads what, and where that is kept."""

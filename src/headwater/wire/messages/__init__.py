"""Every message that Headwater speaks or stores, one file per family."""

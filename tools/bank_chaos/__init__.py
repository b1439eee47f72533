"""Bank transfers as transactions, while everything is killed."""

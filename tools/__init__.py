"""What the house needs around the package: fetched jars, peers to compare with, checks of the tree."""

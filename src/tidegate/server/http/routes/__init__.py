"""One module for each purpose of the HTTP side; each registers its routes and their description."""

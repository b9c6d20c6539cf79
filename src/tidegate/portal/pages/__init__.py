"""The pages, one module each: their routes, their data, and the changes that they offer."""

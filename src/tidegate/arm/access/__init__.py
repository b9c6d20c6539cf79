"""Who may use the management API: service principals, their tokens, and the endpoint that issues them."""

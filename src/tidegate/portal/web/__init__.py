"""What every page needs: visitors and their roles, rendering, assets, and the way from a request to an answer."""

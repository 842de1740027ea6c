"""Orchestrators that have little room, or many who ask: simulations of what one trial alone does not show."""

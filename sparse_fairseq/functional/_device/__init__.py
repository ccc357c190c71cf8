"""The route for other devices and for torch.compile: torch operations, no host sync."""

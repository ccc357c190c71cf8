"""The route for the CPU: lists of the few candidates, looks at values, stops early."""

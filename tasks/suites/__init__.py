"""The catalogue of what is tested where: hardware presets, areas, tiers and their gates."""

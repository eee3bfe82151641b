"""What checks share that run torch: devices, and steps that are marked as they are reached."""

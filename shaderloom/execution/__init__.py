"""Plans that are loaded on a device, and programs of several plans."""

"""Plans that are ready on a device, and programs of several plans."""

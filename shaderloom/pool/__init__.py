"""Many inputs on several devices: a worker process for each, work that goes to whoever is free."""

"""What every domain shares: settings, errors, the Task class, the object store, process and http doors, console."""

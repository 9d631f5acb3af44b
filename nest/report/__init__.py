"""What people read: derived figures and tables."""

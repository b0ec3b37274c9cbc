"""What files may come in: headers and sizes, checked before anything is loaded."""

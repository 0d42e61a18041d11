"""Names and numbers that scripts share with the package."""

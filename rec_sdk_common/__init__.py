"""Names that newer scripts import from the vendor's common package, served by mx_rec."""

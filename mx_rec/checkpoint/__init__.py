"""What lies on disk: layout, manifest, files of tables, chains. Without TensorFlow."""

"""Commands of gcloud and gsutil."""

"""The launcher's parts; `lingvo_gpipe.trainer` puts them together."""

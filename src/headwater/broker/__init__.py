"""The broker process: composition, connections, dispatch and handlers."""

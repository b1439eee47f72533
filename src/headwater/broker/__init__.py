"""The broker process: connections, dispatch, handlers, and the root that composes the rooms."""

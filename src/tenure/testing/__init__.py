"""What an app's own tests import: ``inline`` runs jobs when they are enqueued, without a database and without a worker.

from tenure.testing import inline

with inline(app) as inlined:
    ticket = send_receipt.enqueue_sync(order_id=42)
    assert ticket.result_sync() == "sent"
"""

from tenure.testing.inline import Inline, inline

__all__ = ["Inline", "inline"]

"""topics: those that a template's pattern matches, and their pipelines."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from hudi_ingest.cli.app import app
from hudi_ingest.cli.options import AsJson
from hudi_ingest.cli.printing import print_json, say
from hudi_ingest.home.folder import Home


@app.command()
def topics(
    name: Annotated[str, typer.Argument(metavar="TEMPLATE", help="Name of a pipeline file with {topic}.")],
    refresh: Annotated[
        bool, typer.Option("--refresh", help="List the broker's topics now, and give new ones a pipeline.")
    ] = False,
    forget: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Forget a topic that was deleted for good; its table stays.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the topics of a template and their pipelines."""
    from hudi_ingest.ledger import Ledger
    from hudi_ingest.operations.topic_discovery import forget_topic, refresh_topics, template_topics
    from hudi_ingest.pipeline.folder import find_template

    home, now = Home.from_environment(), datetime.now(timezone.utc)
    template = find_template(home.pipelines, name)
    discovery = None
    if not template.finds_topics and (refresh or forget):
        raise typer.BadParameter(f"{template.path.name} makes no pipelines of topics that appear")
    if refresh or forget:
        with Ledger.open(home.ledger_url) as ledger:
            if forget:
                forget_topic(template, forget, home, ledger, now)
            discovery = refresh_topics(template, home, ledger, now)
    listed = template_topics(template, discovery)
    if as_json:
        print_json([topic.to_dict() for topic in listed])
        return
    for topic in listed:
        gone = "; NOT ON THE BROKER, so its pipeline fails" if topic.missing else ""
        appeared = f", since {topic.seen_at.isoformat(timespec='seconds')}" if topic.seen_at else ""
        say(f"{topic.topic} → {topic.pipeline}{appeared}{gone}")
    if not listed:
        say(f"no topic has matched {template.source.topics_pattern} yet" + ("" if refresh else "; --refresh looks now"))

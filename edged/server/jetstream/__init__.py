"""JetStream: streams of messages that are kept, and what is asked of them.

`jetstream.JetStream` is opened by the daemon when the configuration has a jetstream block; most of this
package is imported only then. It owns the store of the node and the door to it. Each account that may use
JetStream has an `AccountStreams`, and each of its streams is a `Stream`.
"""

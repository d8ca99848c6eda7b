"""WebSocket and gRPC as others speak them: servers that stand for pods, and clients.

peers.py serve-websocket | serve-grpc            prints its port, then serves
peers.py websocket | grpc  ADDRESS AUTHORITY     prints "well" when all went well
"""

import asyncio
import sys
from concurrent import futures


async def serve_websocket():
    import websockets

    async def echo(socket):
        try:
            async for message in socket:
                await socket.send(message)
        except websockets.ConnectionClosed:
            pass  # with a code of the client's own, which is no failure

    async with websockets.serve(echo, "127.0.0.1", 0, subprotocols=["chat"]) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()


async def websocket(address, authority):
    import websockets

    host, port = address.rsplit(":", 1)
    # The name goes into the Host header, the connection to the resolver.
    uri = f"ws://{authority}/chat?room=1"
    async with websockets.connect(
        uri, host=host, port=int(port), subprotocols=["chat"], max_size=None, open_timeout=60, proxy=None
    ) as socket:
        assert socket.subprotocol == "chat", socket.subprotocol
        for message in ["hello", "x" * 300_000, b"\0\1\2" * 1000]:
            await socket.send(message)
            assert await socket.recv() == message
        await (await socket.ping())
        await socket.close(code=4000, reason="enough")
    assert socket.close_code == 4000, socket.close_code


def serve_grpc():
    import grpc

    def unary(request, context):
        context.set_trailing_metadata([("told", "so")])
        if request == b"fail":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not like this")
        return request * 2

    def down(request, context):
        for number in range(int(request)):
            yield str(number).encode()

    def up(requests, context):
        return str(sum(len(request) for request in requests)).encode()

    def both(requests, context):
        for request in requests:
            yield request

    handlers = {
        "unary": grpc.unary_unary_rpc_method_handler(unary),
        "down": grpc.unary_stream_rpc_method_handler(down),
        "up": grpc.stream_unary_rpc_method_handler(up),
        "both": grpc.stream_stream_rpc_method_handler(both),
    }
    server = grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def grpc_client(address, authority):
    import queue

    import grpc

    options = [("grpc.default_authority", authority), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address, options) as channel:
        reply, call = channel.unary_unary("/test.Echo/unary").with_call(b"ab", timeout=60)
        assert reply == b"abab", reply
        assert ("told", "so") in [tuple(pair) for pair in call.trailing_metadata()], call.trailing_metadata()
        try:
            channel.unary_unary("/test.Echo/unary")(b"fail", timeout=60)
            raise AssertionError("it should have failed")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
            assert error.details() == "not like this", error
        numbers = [int(part) for part in channel.unary_stream("/test.Echo/down")(b"1000", timeout=60)]
        assert numbers == list(range(1000))
        pieces = (b"x" * 10_000 for _ in range(300))
        assert channel.stream_unary("/test.Echo/up")(pieces, timeout=60) == b"3000000"
        # Each message is answered before the next one is sent: nothing may be kept back.
        waiting = queue.Queue()
        answers = channel.stream_stream("/test.Echo/both")(iter(waiting.get, None), timeout=60)
        for number in range(100):
            waiting.put(str(number).encode())
            assert next(answers) == str(number).encode()
        waiting.put(None)
        assert list(answers) == []
        # More streams at a time than one connection to a pod carries.
        calls = [channel.unary_unary("/test.Echo/unary").future(b"z", timeout=60) for _ in range(300)]
        assert all(call.result() == b"zz" for call in calls)


role, arguments = sys.argv[1], sys.argv[2:]
if role == "serve-websocket":
    asyncio.run(serve_websocket())
elif role == "serve-grpc":
    serve_grpc()
elif role == "websocket":
    asyncio.run(websocket(*arguments))
    print("well")
elif role == "grpc":
    grpc_client(*arguments)
    print("well")

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// plain sends bytes as they are, so that nothing need be generated.
type plain struct{}

func (plain) Name() string { return "plain" }

func (plain) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }

func (plain) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// serveGRPC stands for a pod: it prints its port, then serves.
func serveGRPC() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	server := grpc.NewServer(grpc.ForceServerCodec(plain{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: unary}},
		Streams: []grpc.StreamDesc{
			{StreamName: "Down", Handler: down, ServerStreams: true},
			{StreamName: "Both", Handler: both, ServerStreams: true, ClientStreams: true},
		},
	}, struct{}{})
	return server.Serve(listener)
}

// unary answers twice what it is asked, or fails with the code that it is told.
func unary(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var request []byte
	if err := decode(&request); err != nil {
		return nil, err
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs("before", "it"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("told", "so", "raw-bin", "\x00\xff"))
	if code, err := strconv.Atoi(string(request)); err == nil {
		return nil, status.Errorf(codes.Code(code), "not like this: %d", code)
	}
	answer := append(request, request...)
	return &answer, nil
}

// down counts to the number that it is asked for, and then fails as the trailers alone can tell.
func down(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	count, err := strconv.Atoi(string(request))
	if err != nil {
		return status.Error(codes.InvalidArgument, "not a number")
	}
	for number := range count {
		answer := []byte(strconv.Itoa(number))
		if err := stream.SendMsg(&answer); err != nil {
			return err
		}
	}
	return status.Error(codes.DataLoss, "that was all")
}

// both sends back what comes, as it comes.
func both(_ any, stream grpc.ServerStream) error {
	for {
		var message []byte
		if err := stream.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
}

// askGRPC prints "well" when every kind of call through the address went well. The first of them may find
// nobody awake.
func askGRPC(address, authority string) error {
	connection, err := grpc.NewClient(
		"passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority(authority),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{})),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, one := range []struct {
		name string
		run  func(context.Context, *grpc.ClientConn) error
	}{
		{"a call that wakes", wakes},
		{"codes", statuses},
		{"a stream of answers", counts},
		{"a conversation", converses},
		{"a call that is given up", givesUp},
		{"many at a time", crowd},
	} {
		if err := one.run(ctx, connection); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	fmt.Println("well")
	return nil
}

func call(ctx context.Context, connection *grpc.ClientConn, text string, options ...grpc.CallOption) (string, error) {
	request, answer := []byte(text), []byte(nil)
	err := connection.Invoke(ctx, "/test.Echo/Unary", &request, &answer, options...)
	return string(answer), err
}

func wakes(ctx context.Context, connection *grpc.ClientConn) error {
	var header, trailer metadata.MD
	answer, err := call(ctx, connection, "ab", grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		return err
	}
	told := fmt.Sprint(answer, header.Get("before"), trailer.Get("told"), trailer.Get("raw-bin"))
	return expect(told == fmt.Sprint("abab", []string{"it"}, []string{"so"}, []string{"\x00\xff"}), "%q", told)
}

func statuses(ctx context.Context, connection *grpc.ClientConn) error {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		_, err := call(ctx, connection, strconv.Itoa(int(code)))
		found := status.Convert(err)
		wanted := fmt.Sprintf("not like this: %d", code)
		if err := expect(found.Code() == code && found.Message() == wanted, "%v became %v", code, err); err != nil {
			return err
		}
	}
	request, answer := []byte(nil), []byte(nil)
	err := connection.Invoke(ctx, "/test.Echo/Nothing", &request, &answer)
	return expect(status.Code(err) == codes.Unimplemented, "an unknown method: %v", err)
}

func counts(ctx context.Context, connection *grpc.ClientConn) error {
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/Down")
	if err != nil {
		return err
	}
	request := []byte("1000")
	if err := errors.Join(stream.SendMsg(&request), stream.CloseSend()); err != nil {
		return err
	}
	for number := range 1000 {
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			return err
		}
		if err := expect(string(answer) == strconv.Itoa(number), "%d is %q", number, answer); err != nil {
			return err
		}
	}
	err = stream.RecvMsg(&request)
	return expect(status.Code(err) == codes.DataLoss, "the end: %v", err)
}

func converses(ctx context.Context, connection *grpc.ClientConn) error {
	description := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := connection.NewStream(ctx, description, "/test.Echo/Both")
	if err != nil {
		return err
	}
	// Each is answered before the next is sent: nothing may be kept back.
	for number := range 100 {
		message, answer := make([]byte, number*1000), []byte(nil)
		if err := errors.Join(stream.SendMsg(&message), stream.RecvMsg(&answer)); err != nil {
			return err
		}
		if err := expect(len(answer) == len(message), "%d bytes are %d", len(message), len(answer)); err != nil {
			return err
		}
	}
	var more []byte
	if err := stream.CloseSend(); err != nil {
		return err
	}
	err = stream.RecvMsg(&more)
	return expect(errors.Is(err, io.EOF), "the end: %v", err)
}

// givesUp leaves in the middle of a stream; the connection has to outlive that.
func givesUp(ctx context.Context, connection *grpc.ClientConn) error {
	within, cancel := context.WithCancel(ctx)
	description := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := connection.NewStream(within, description, "/test.Echo/Both")
	if err != nil {
		cancel()
		return err
	}
	message := []byte("x")
	err = errors.Join(stream.SendMsg(&message), stream.RecvMsg(&message))
	cancel()
	if err != nil {
		return err
	}
	err = stream.RecvMsg(&message)
	if err := expect(status.Code(err) == codes.Canceled, "after the end: %v", err); err != nil {
		return err
	}
	answer, err := call(ctx, connection, "z")
	return errors.Join(err, expect(answer == "zz", "%q", answer))
}

// crowd has more streams at a time than one connection to a pod carries.
func crowd(ctx context.Context, connection *grpc.ClientConn) error {
	failures := make(chan error, 300)
	var all sync.WaitGroup
	for range cap(failures) {
		all.Go(func() {
			answer, err := call(ctx, connection, "z")
			failures <- errors.Join(err, expect(answer == "zz", "%q", answer))
		})
	}
	all.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

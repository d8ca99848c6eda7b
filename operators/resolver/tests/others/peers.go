// HTTP as Go speaks it, with nothing but its standard library: a server that stands for a pod, and a
// client over HTTP/1.1 and over HTTP/2 without TLS.
//
//	peers serve                     prints its port, then serves
//	peers ask ADDRESS AUTHORITY     prints "well" when all went well
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve()
	case len(os.Args) == 4 && os.Args[1] == "ask":
		err = ask(os.Args[2], os.Args[3])
	default:
		err = fmt.Errorf("serve, or ask ADDRESS AUTHORITY")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	server := http.Server{Handler: http.HandlerFunc(answer), Protocols: both()}
	return server.Serve(listener)
}

// answer tells the protocol and sends the body back as it comes, the number of its bytes in a trailer.
func answer(w http.ResponseWriter, r *http.Request) {
	// Hints that come before the answer must not be taken for it.
	w.Header().Set("Link", "</style.css>; rel=preload")
	w.WriteHeader(http.StatusProcessing)
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Set("Trailer", "Counted")
	w.Header().Set("Spoken", r.Proto)
	control := http.NewResponseController(w)
	// HTTP/2 always may; of HTTP/1.1 it has to be asked for.
	_ = control.EnableFullDuplex()
	_ = control.Flush()
	count, piece := 0, make([]byte, 64<<10)
	for {
		read, err := r.Body.Read(piece)
		count += read
		_, _ = w.Write(piece[:read])
		_ = control.Flush()
		if err != nil {
			break
		}
	}
	w.Header().Set("Counted", fmt.Sprint(count))
}

func both() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return protocols
}

func ask(address, authority string) error {
	for spoken, choose := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2.0": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		protocols := new(http.Protocols)
		choose(protocols)
		transport := &http.Transport{
			Protocols:           protocols,
			MaxIdleConnsPerHost: 16,
			// A body that is announced is sent when it is asked for, and not before.
			ExpectContinueTimeout: time.Hour,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			},
		}
		client := &http.Client{Transport: transport, Timeout: 60 * time.Second}
		if err := many(client, authority, spoken); err != nil {
			return fmt.Errorf("%s: %w", spoken, err)
		}
		if spoken == "HTTP/2.0" {
			if err := converse(client, authority); err != nil {
				return fmt.Errorf("a conversation: %w", err)
			}
		}
	}
	fmt.Println("well")
	return nil
}

// many asks with bodies of all sizes, eight at a time, and counts what comes back.
func many(client *http.Client, authority, spoken string) error {
	sizes := []int{0, 1, 1000, 70_000, 1 << 20}
	failures := make(chan error, 8)
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for _, size := range sizes {
				if err := once(client, authority, spoken, size); err != nil {
					failures <- fmt.Errorf("%d bytes: %w", size, err)
					return
				}
			}
		}()
	}
	all.Wait()
	close(failures)
	return <-failures
}

func once(client *http.Client, authority, spoken string, size int) error {
	sent := bytes.Repeat([]byte("x"), size)
	request, err := http.NewRequest("POST", "http://"+authority+"/", bytes.NewReader(sent))
	if err != nil {
		return err
	}
	// Over HTTP/1.1 nobody sends trailers to those who do not ask for them.
	request.Header.Set("TE", "trailers")
	announced := spoken == "HTTP/1.1" && size > 0
	var asked atomic.Bool
	if announced {
		request.Header.Set("Expect", "100-continue")
		trace := &httptrace.ClientTrace{Got100Continue: func() { asked.Store(true) }}
		request = request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode != 200 || response.Proto != spoken || response.Header.Get("Spoken") != spoken:
		return fmt.Errorf("%d in %s, the pod heard %q", response.StatusCode, response.Proto, response.Header.Get("Spoken"))
	case asked.Load() != announced:
		return fmt.Errorf("was the body asked for? %t", asked.Load())
	case !bytes.Equal(received, sent):
		return fmt.Errorf("%d bytes came back", len(received))
	case response.Trailer.Get("Counted") != fmt.Sprint(size):
		return fmt.Errorf("the trailers are %v", response.Trailer)
	}
	return nil
}

// converse says something only after it has heard what it said before.
func converse(client *http.Client, authority string) error {
	read, write := io.Pipe()
	response, err := client.Post("http://"+authority+"/", "text/plain", read)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for turn := range 5 {
		said := strings.Repeat("word ", turn+1)
		if _, err := io.WriteString(write, said); err != nil {
			return err
		}
		heard := make([]byte, len(said))
		if _, err := io.ReadFull(response.Body, heard); err != nil || string(heard) != said {
			return fmt.Errorf("%q, %w", heard, err)
		}
	}
	return write.Close()
}

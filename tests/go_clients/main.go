// What programs written with client-go and controller-runtime do all day, against the API server
// of the kubeconfig: each check prints one line, and the first that fails ends the program. With arguments it
// is a server or a client of gRPC instead, for the resolver to stand between.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// patience is how long anything may take on a machine with much else to do.
const patience = 90 * time.Second

// world is what a check has to work with.
type world struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
}

type check struct {
	name string
	run  func(context.Context, world) error
}

func checks() []check {
	return []check{
		{"discovery, mapping and descriptions", describe},
		{"a shared informer sees every change in order", sharedInformer},
		{"an informer of metadata alone", metadataInformer},
		{"a dynamic informer of a custom resource", dynamicInformer},
		{"a list in pages, and the watch that goes on from it", pages},
		{"server-side apply, typed, with a conflict", apply},
		{"every kind of patch", patches},
		{"the scale client", scales},
		{"deletion with preconditions, in the foreground, and of collections", deletions},
		{"two candidates and one lease", election},
		{"events", events},
		{"a controller-runtime manager with a finalizer, a status and an owned object", manager},
	}
}

// eventually asks until the answer is yes.
func eventually(ctx context.Context, what string, is func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, is)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func expect(is bool, format string, arguments ...any) error {
	if is {
		return nil
	}
	return fmt.Errorf(format, arguments...)
}

func run() error {
	ctrllog.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for number, check := range checks() {
		namespace := fmt.Sprintf("go-clients-%d", number)
		if err := makeNamespace(ctx, client, namespace); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, 2*patience)
		err := check.run(bounded, world{config, client, namespace})
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", check.name, err)
		}
		fmt.Println("ok:", check.name)
	}
	return nil
}

func main() {
	var err error
	switch {
	case len(os.Args) == 1:
		err = run()
	case len(os.Args) == 2 && os.Args[1] == "serve-grpc":
		err = serveGRPC()
	case len(os.Args) == 4 && os.Args[1] == "ask-grpc":
		err = askGRPC(os.Args[2], os.Args[3])
	default:
		err = fmt.Errorf("nothing, serve-grpc, or ask-grpc ADDRESS AUTHORITY")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
}

// The cache of controller-runtime: fills itself with the pods of an API server, without their
// managed fields, says so, and waits to be stopped.
package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func run(server string) error {
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	ctx := context.Background()
	pods, err := cache.New(&rest.Config{Host: server}, cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	if _, err := pods.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- pods.Start(ctx) }()
	if !pods.WaitForCacheSync(ctx) {
		return fmt.Errorf("the cache did not sync: %w", <-ended)
	}
	fmt.Println("synced")
	return <-ended
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The queues of client-go and controller-runtime, under the same load as ours: every key is
// added, taken, forgotten and done once, by 1, 4 and 16 workers. Prints one line each.
package main

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

type key struct{ namespace, name string }

const (
	keys   = 200_000
	rounds = 3
)

// queue is what both queues can do.
type queue interface {
	Add(key)
	Get() (key, bool)
	Forget(key)
	Done(key)
	ShutDown()
}

func round(all []key, queue queue, workers int) float64 {
	var group, done sync.WaitGroup
	done.Add(len(all))
	began := time.Now()
	for range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				item, shutdown := queue.Get()
				if shutdown {
					return
				}
				queue.Forget(item)
				queue.Done(item)
				done.Done()
			}
		}()
	}
	for _, one := range all {
		queue.Add(one)
	}
	done.Wait()
	took := time.Since(began)
	queue.ShutDown()
	group.Wait()
	return float64(len(all)) / took.Seconds()
}

func main() {
	all := make([]key, keys)
	for number := range all {
		all[number] = key{fmt.Sprintf("ns-%d", number%50), fmt.Sprintf("object-%d", number)}
	}
	limiter := func() workqueue.TypedRateLimiter[key] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[key](5*time.Millisecond, 1000*time.Second)
	}
	makers := []struct {
		name string
		make func() queue
	}{
		{"client-go workqueue", func() queue { return workqueue.NewTypedRateLimitingQueue(limiter()) }},
		{"controller-runtime priorityqueue", func() queue {
			return priorityqueue.New("bench", func(options *priorityqueue.Opts[key]) { options.RateLimiter = limiter() })
		}},
	}
	for _, maker := range makers {
		for _, workers := range []int{1, 4, 16} {
			best := 0.0
			for range rounds {
				best = max(best, round(all, maker.make(), workers))
			}
			fmt.Printf("%s\t%d\t%.0f\n", maker.name, workers, best)
		}
	}
}

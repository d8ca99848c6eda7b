package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"
)

// notes are what an informer was told.
type notes struct {
	sync.Mutex
	lines []string
}

func (notes *notes) add(kind string, object any) {
	if gone, is := object.(cache.DeletedFinalStateUnknown); is {
		object = gone.Obj
	}
	name := "?"
	if named, is := object.(metav1.Object); is {
		name = named.GetName()
	}
	notes.Lock()
	defer notes.Unlock()
	notes.lines = append(notes.lines, kind+" "+name)
}

func (notes *notes) count(line string) int {
	notes.Lock()
	defer notes.Unlock()
	found := 0
	for _, one := range notes.lines {
		if one == line {
			found++
		}
	}
	return found
}

func (notes *notes) listen(informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { notes.add("add", object) },
		UpdateFunc: func(old, object any) {
			// A resync is no news.
			if old.(metav1.Object).GetResourceVersion() != object.(metav1.Object).GetResourceVersion() {
				notes.add("update", object)
			}
		},
		DeleteFunc: func(object any) { notes.add("delete", object) },
	})
	return err
}

func (notes *notes) wait(ctx context.Context, line string, times int) error {
	return eventually(ctx, line, func(context.Context) (bool, error) { return notes.count(line) >= times, nil })
}

// changes makes, changes and deletes, with one object that is there before anybody looks.
func changes(ctx context.Context, world world, informer cache.SharedIndexInformer, start func()) error {
	maps := world.client.CoreV1().ConfigMaps(world.namespace)
	if _, err := maps.Create(ctx, configMap("before", nil), metav1.CreateOptions{}); err != nil {
		return err
	}
	var notes notes
	if err := notes.listen(informer); err != nil {
		return err
	}
	start()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("it does not sync")
	}
	if err := notes.wait(ctx, "add before", 1); err != nil {
		return err
	}
	const updates = 20
	if _, err := maps.Create(ctx, configMap("after", nil), metav1.CreateOptions{}); err != nil {
		return err
	}
	for number := range updates {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {"number": "%d"}}}`, number)
		if _, err := maps.Patch(ctx, "after", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	if err := maps.Delete(ctx, "after", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := notes.wait(ctx, "delete after", 1); err != nil {
		return err
	}
	return expect(
		notes.count("add after") == 1 && notes.count("update after") == updates && notes.count("delete before") == 0,
		"it saw %v", notes.lines)
}

func sharedInformer(ctx context.Context, world world) error {
	factory := informers.NewSharedInformerFactoryWithOptions(world.client, time.Second, informers.WithNamespace(world.namespace))
	return changes(ctx, world, factory.Core().V1().ConfigMaps().Informer(), func() { factory.Start(ctx.Done()) })
}

func metadataInformer(ctx context.Context, world world) error {
	client, err := metadata.NewForConfig(world.config)
	if err != nil {
		return err
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, world.namespace, nil)
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer()
	return changes(ctx, world, informer, func() { factory.Start(ctx.Done()) })
}

func dynamicInformer(ctx context.Context, world world) error {
	client, err := dynamic.NewForConfig(world.config)
	if err != nil {
		return err
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets.go.example.com"},
		"spec": map[string]any{
			"group": "go.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{"spec": map[string]any{
						"type":       "object",
						"properties": map[string]any{"size": map[string]any{"type": "integer", "default": int64(7)}},
						"default":    map[string]any{},
					}},
				}},
			}},
		},
	}}
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	gadget := schema.GroupVersionResource{Group: "go.example.com", Version: "v1", Resource: "gadgets"}
	gadgets := client.Resource(gadget).Namespace(world.namespace)
	one := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "go.example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "one"},
	}}
	err = eventually(ctx, "the kind is served", func(ctx context.Context) (bool, error) {
		made, err := gadgets.Create(ctx, one, metav1.CreateOptions{})
		if err != nil {
			return false, nil
		}
		size, _, err := unstructured.NestedInt64(made.Object, "spec", "size")
		return size == 7, err
	})
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(gadget).Informer()
	var notes notes
	if err := notes.listen(informer); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if err := notes.wait(ctx, "add one", 1); err != nil {
		return err
	}
	if err := gadgets.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := notes.wait(ctx, "delete one", 1); err != nil {
		return err
	}
	return definitions.Delete(ctx, "gadgets.go.example.com", metav1.DeleteOptions{})
}

func pages(ctx context.Context, world world) error {
	maps := world.client.CoreV1().ConfigMaps(world.namespace)
	const count = 25
	for number := range count {
		if _, err := maps.Create(ctx, configMap(fmt.Sprintf("page-%02d", number), nil), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	asked := 0
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		asked++
		return maps.List(ctx, options)
	})
	list.PageSize = 10
	// The control plane may put a ConfigMap of its own into every namespace.
	seen := 0
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if object.(*corev1.ConfigMap).Name[:4] == "page" {
			seen++
		}
		return nil
	})
	if err != nil {
		return err
	}
	whole, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", "page-07").String()
		return maps.Watch(ctx, options)
	}}
	if err := maps.Delete(ctx, "page-07", metav1.DeleteOptions{}); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last, err := watchtools.Until(bounded, whole.ResourceVersion, source, func(event watch.Event) (bool, error) {
		return event.Type == watch.Deleted, nil
	})
	if err != nil {
		return err
	}
	return errors.Join(
		expect(seen == count && asked == 3, "%d objects in %d pages", seen, asked),
		expect(last.Object.(*corev1.ConfigMap).Name == "page-07", "the watch saw %v", last.Object),
	)
}

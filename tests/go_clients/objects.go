package main

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/retry"
)

func makeNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return err
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	replicas := int32(0)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "example.com/web:1",
					Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
					},
				}}},
			},
		},
	}
}

func describe(_ context.Context, world world) error {
	client, err := discovery.NewDiscoveryClientForConfig(world.config)
	if err != nil {
		return err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return err
	}
	groups, resources, err := client.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	if err != nil {
		return err
	}
	v2, err := client.OpenAPISchema()
	if err != nil {
		return err
	}
	v3, err := client.OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	document, err := v3["apis/apps/v1"].Schema("application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
	if err != nil {
		return err
	}
	return errors.Join(
		expect(version.Major == "1", "version %v", version),
		expect(len(groups) > 5 && len(resources) > 5, "%d groups, %d lists", len(groups), len(resources)),
		expect(mapping.Resource.Resource == "deployments", "mapped to %v", mapping.Resource),
		expect(len(v2.GetDefinitions().GetAdditionalProperties()) > 100, "few definitions"),
		expect(len(document) > 1000, "a short document"),
	)
}

func apply(ctx context.Context, world world) error {
	maps := world.client.CoreV1().ConfigMaps(world.namespace)
	wanted := applycore.ConfigMap("shared", world.namespace).WithData(map[string]string{"a": "1"})
	first, err := maps.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "first"})
	if err != nil {
		return err
	}
	same, err := maps.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "first"})
	if err != nil {
		return err
	}
	wanted = applycore.ConfigMap("shared", world.namespace).WithData(map[string]string{"a": "2", "b": "2"})
	_, err = maps.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "second"})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("no conflict: %w", err)
	}
	forced, err := maps.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "second", Force: true})
	if err != nil {
		return err
	}
	// What the second manager owns can be read back in its own shape.
	extracted, err := applycore.ExtractConfigMap(forced, "second")
	if err != nil {
		return err
	}
	return errors.Join(
		expect(same.ResourceVersion == first.ResourceVersion, "an apply of the same wrote something"),
		expect(forced.Data["a"] == "2", "forced: %v", forced.Data),
		expect(len(extracted.Data) == 2, "extracted: %v", extracted.Data),
	)
}

func patches(ctx context.Context, world world) error {
	deployments := world.client.AppsV1().Deployments(world.namespace)
	if _, err := deployments.Create(ctx, deployment("web"), metav1.CreateOptions{}); err != nil {
		return err
	}
	all := []struct {
		kind types.PatchType
		body string
	}{
		{types.JSONPatchType, `[{"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}}]`},
		{types.MergePatchType, `{"metadata": {"annotations": {"b": "2"}}}`},
		{types.StrategicMergePatchType, `{"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "example.com/side:1"}]}}}}`},
		{types.ApplyPatchType, `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "annotations": {"c": "3"}}}`},
	}
	for _, one := range all {
		options := metav1.PatchOptions{FieldManager: "patches"}
		if _, err := deployments.Patch(ctx, "web", one.kind, []byte(one.body), options); err != nil {
			return fmt.Errorf("%s: %w", one.kind, err)
		}
	}
	web, err := deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata": {"resourceVersion": "1"}}`), metav1.PatchOptions{})
	return errors.Join(
		expect(web.Annotations["a"]+web.Annotations["b"]+web.Annotations["c"] == "123", "annotations %v", web.Annotations),
		expect(len(web.Spec.Template.Spec.Containers) == 2, "containers %v", web.Spec.Template.Spec.Containers),
		expect(apierrors.IsConflict(err), "a patch of an old version: %v", err),
	)
}

func scales(ctx context.Context, world world) error {
	if _, err := world.client.AppsV1().Deployments(world.namespace).Create(ctx, deployment("web"), metav1.CreateOptions{}); err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(world.config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	scaler, err := scale.NewForConfig(world.config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client))
	if err != nil {
		return err
	}
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	var scaled *autoscalingv1.Scale
	// The controller writes its status meanwhile.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := scaler.Scales(world.namespace).Get(ctx, resource, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		found.Spec = autoscalingv1.ScaleSpec{Replicas: 3}
		scaled, err = scaler.Scales(world.namespace).Update(ctx, resource, found, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	web, err := world.client.AppsV1().Deployments(world.namespace).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return errors.Join(
		expect(scaled.Status.Selector == "app=web", "selector %q", scaled.Status.Selector),
		expect(*web.Spec.Replicas == 3, "replicas %d", *web.Spec.Replicas),
	)
}

func deletions(ctx context.Context, world world) error {
	maps := world.client.CoreV1().ConfigMaps(world.namespace)
	made, err := maps.Create(ctx, configMap("owner", nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	wrong := types.UID("another")
	err = maps.Delete(ctx, "owner", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("another object's uid: %w", err)
	}
	owned := configMap("owned", nil)
	yes := true
	owned.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: made.UID, BlockOwnerDeletion: &yes,
	}}
	if _, err := maps.Create(ctx, owned, metav1.CreateOptions{}); err != nil {
		return err
	}
	foreground := metav1.DeletePropagationForeground
	if err := maps.Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		return err
	}
	err = eventually(ctx, "owner and owned go", func(ctx context.Context) (bool, error) {
		_, first := maps.Get(ctx, "owned", metav1.GetOptions{})
		_, second := maps.Get(ctx, "owner", metav1.GetOptions{})
		return apierrors.IsNotFound(first) && apierrors.IsNotFound(second), nil
	})
	if err != nil {
		return err
	}
	for number := range 5 {
		one := configMap(fmt.Sprintf("one-%d", number), nil)
		one.Labels = map[string]string{"odd": fmt.Sprint(number % 2)}
		if _, err := maps.Create(ctx, one, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	odd := metav1.ListOptions{LabelSelector: "odd=1"}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, odd); err != nil {
		return err
	}
	left, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "odd"})
	if err != nil {
		return err
	}
	return expect(len(left.Items) == 3, "%d are left", len(left.Items))
}

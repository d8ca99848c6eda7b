package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

func election(ctx context.Context, world world) error {
	led := make(chan string, 2)
	candidate := func(name string) (context.CancelFunc, error) {
		ctx, stop := context.WithCancel(ctx)
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: world.namespace, Name: "lead"},
				Client:     world.client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 200 * time.Millisecond,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { led <- name },
				OnStoppedLeading: func() {},
			},
		})
		if err == nil {
			go elector.Run(ctx)
		}
		return stop, err
	}
	wait := func(name string) error {
		select {
		case leader := <-led:
			return expect(leader == name, "%s leads instead of %s", leader, name)
		case <-time.After(patience):
			return fmt.Errorf("%s never leads", name)
		}
	}
	stopFirst, err := candidate("first")
	if err != nil {
		return err
	}
	defer stopFirst()
	if err := wait("first"); err != nil {
		return err
	}
	stopSecond, err := candidate("second")
	if err != nil {
		return err
	}
	defer stopSecond()
	stopFirst()
	return wait("second")
}

func events(ctx context.Context, world world) error {
	maps := world.client.CoreV1().ConfigMaps(world.namespace)
	about, err := maps.Create(ctx, configMap("about", nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: world.client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "go-clients"})
	for range 3 {
		recorder.Event(about, corev1.EventTypeWarning, "Tried", "the same thing again")
	}
	return eventually(ctx, "one event that counts to three", func(ctx context.Context) (bool, error) {
		list, err := world.client.CoreV1().Events(world.namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=about,reason=Tried,type=Warning",
		})
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 3, err
	})
}

const finalizer = "go.example.com/clean"

// keeper keeps a Secret beside every Pod, and says so in the Pod's status.
type keeper struct {
	client.Client
	cleaned chan string
}

func (keeper *keeper) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := keeper.Get(ctx, request.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pod.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&pod, finalizer) {
			if err := keeper.Update(ctx, &pod); err != nil {
				return ctrl.Result{}, err
			}
			keeper.cleaned <- pod.Name
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&pod, finalizer) {
		if err := keeper.Update(ctx, &pod); err != nil {
			return ctrl.Result{}, err
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, keeper.Client, secret, func() error {
		secret.StringData = map[string]string{"for": pod.Name}
		return controllerutil.SetControllerReference(&pod, secret, keeper.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	before := pod.DeepCopy()
	pod.Status.Message = "kept"
	return ctrl.Result{}, keeper.Status().Patch(ctx, &pod, client.MergeFrom(before))
}

func manager(ctx context.Context, world world) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	manager, err := ctrl.NewManager(world.config, ctrl.Options{
		Metrics:                 server.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "keeper",
		LeaderElectionNamespace: world.namespace,
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{world.namespace: {}}},
	})
	if err != nil {
		return err
	}
	keeper := &keeper{manager.GetClient(), make(chan string, 1)}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).Owns(&corev1.Secret{}).Complete(keeper)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()

	// A gate keeps the pod from being scheduled, so that nobody else writes its status.
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{
			Containers:      []corev1.Container{{Name: "web", Image: "example.com/web:1"}},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "go.example.com/never"}},
		},
	}
	pods, secrets := world.client.CoreV1().Pods(world.namespace), world.client.CoreV1().Secrets(world.namespace)
	err = eventually(ctx, "the pod is accepted", func(ctx context.Context) (bool, error) {
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
	if err != nil {
		return err
	}
	kept := func(ctx context.Context) (bool, error) {
		_, missing := secrets.Get(ctx, "web", metav1.GetOptions{})
		found, err := pods.Get(ctx, "web", metav1.GetOptions{})
		return err == nil && missing == nil && found.Status.Message == "kept", nil
	}
	if err := eventually(ctx, "the secret is made", kept); err != nil {
		return err
	}
	if err := secrets.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := eventually(ctx, "the secret is made again", kept); err != nil {
		return err
	}
	now := int64(0)
	if err := pods.Delete(ctx, "web", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	select {
	case name := <-keeper.cleaned:
		err = expect(name == "web", "%s was cleaned up", name)
	case err = <-ended:
		err = errors.Join(errors.New("the manager ended"), err)
	case <-time.After(patience):
		err = errors.New("the finalizer never ran")
	}
	if err != nil {
		return err
	}
	return eventually(ctx, "the pod goes", func(ctx context.Context) (bool, error) {
		var gone corev1.Pod
		err := manager.GetAPIReader().Get(ctx, types.NamespacedName{Namespace: world.namespace, Name: "web"}, &gone)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

package keeper

import "sluice/tunio/link"

// namespace is the namespace of that name, which is followed from now on.
func (k *Keeper) namespace(name string) *namespace {
	n := k.names[name]
	if n == nil {
		n = &namespace{name: name, wake: k.wake}
		n.err = n.open()
		k.names[name] = n
	}
	return n
}

// own is the process's own namespace.
func (k *Keeper) own() *namespace { return k.namespace("") }

// forgetNamespaces lets go of those that no port lives in: who holds one keeps it alive.
func (k *Keeper) forgetNamespaces() {
	used := map[*namespace]bool{k.own(): true}
	for _, p := range k.ports {
		used[p.ns] = true
	}
	for name, n := range k.names {
		if !used[n] {
			n.close()
			delete(k.names, name)
		}
	}
}

// namespace is a namespace that ports live in, for as long as its name means it.
type namespace struct {
	name    string
	wake    chan<- struct{}
	ns      *link.Namespace // nil while there is none of the name,
	err     error           // and then why
	watcher *link.Watcher
	uses    map[int]string // link.HostUses, once this look has asked; else nil
}

// open opens the namespace and begins to follow its netdevs.
func (n *namespace) open() (err error) {
	ns, err := link.OpenNamespace(n.name)
	if err != nil {
		return err
	}
	w, err := ns.Watch()
	if err != nil {
		ns.Close()
		return err
	}
	n.ns, n.watcher = ns, w
	go func() {
		for range w.Events() {
			select {
			case n.wake <- struct{}{}:
			default:
			}
		}
	}()
	return nil
}

// follow lets go of a namespace that was deleted, since who holds it keeps it and
// its netdevs alive, and opens one that was made again.
func (n *namespace) follow() {
	n.uses = nil
	if n.ns != nil && !n.ns.Alive() {
		n.close()
	}
	if n.ns == nil {
		n.err = n.open()
	}
}

// hostUses is what the host's own stack needs netdevs for, asked once for all ports.
func (n *namespace) hostUses() (_ map[int]string, err error) {
	if n.uses == nil {
		n.uses, err = n.ns.HostUses()
	}
	return n.uses, err
}

func (n *namespace) close() {
	if n.ns != nil {
		n.watcher.Close()
		n.ns.Close()
		n.ns, n.watcher = nil, nil
	}
}

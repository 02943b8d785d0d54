package main

import "testing"

func TestReplicas(t *testing.T) {
	s := settings{minimum: 2, maximum: 50, nodesPerReplica: 100}
	for nodes, wanted := range map[int]int32{1: 1, 2: 2, 100: 2, 200: 2, 201: 3, 7500: 50, 4999: 50, 4900: 49} {
		if got := s.replicas(nodes); got != wanted {
			t.Errorf("%d nodes: got %d replicas, wanted %d", nodes, got, wanted)
		}
	}
}

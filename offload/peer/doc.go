// Package peer holds only a benchmark. It compares, in one run, how fast package offload and
// wireguard/tun segment.
//
//	go test -bench . -count 10 ./offload/peer | tee bench.txt
//	go tool benchstat -col /impl bench.txt
package peer

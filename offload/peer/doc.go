// Package peer holds no code but a benchmark: how fast package offload segments,
// compared with wireguard/tun in one run.
//
//	go test -bench . -count 10 ./offload/peer | tee bench.txt
//	go tool benchstat -col /impl bench.txt
package peer

// Command peer is the program that tests run in guests. It exchanges data with the peer in another
// guest, and reports what the NIC delivered.
//
//	peer serve                        answer swaps and echoes, until killed
//	peer swap [-on] ADDRESS SIZE      exchange SIZE bytes each way, over one TCP connection
//	peer echo ADDRESS SIZE COUNT      a burst of COUNT datagrams of SIZE bytes, and back
//	peer watch DEVICE                 what came in, a line of JSON every 200 ms
//
// swap -on repeats until SIGTERM. Then it finishes the current exchange, and prints how many there
// were. watch ends with SIGTERM; its lines are of type seen.Frames.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// port is where serve listens, with TCP and UDP.
const port = "7007"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("serve, swap, echo or watch?")
	}
	term, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	on := flags.Bool("on", false, "swap: repeat until SIGTERM")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	var numbers [3]int
	for i := 1; i < min(flags.NArg(), len(numbers)); i++ {
		n, err := strconv.Atoi(flags.Arg(i))
		if err != nil {
			return err
		}
		numbers[i] = n
	}
	switch args[0] {
	case "serve":
		return serve()
	case "swap":
		return swap(term, flags.Arg(0), int64(numbers[1]), *on)
	case "echo":
		return echo(flags.Arg(0), numbers[1], numbers[2])
	case "watch":
		return watch(term, flags.Arg(0))
	}
	return fmt.Errorf("%s: unknown", args[0])
}

// Command franz gives the compatibility suite a franz-go client by the verb:
//
//	franz BOOTSTRAP VERB < request.json > answer.json
//
// The answer is {"result": ...} or {"error": "TOPIC_ALREADY_EXISTS"}. The verbs "member" and
// "writer" run until SIGTERM instead, and print one JSON event a line. "franz transactions",
// "franz logins" and "franz kafka-go-logins" answer requests until their input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Request holds the arguments of every verb; each verb reads its own.
type Request struct {
	Topic      string            `json:"topic"`
	Group      string            `json:"group"`
	Codec      string            `json:"codec"`
	Idempotent bool              `json:"idempotent"`
	Messages   []Message         `json:"messages"`
	Start      string            `json:"start"`
	At         int64             `json:"at"`
	Count      int               `json:"count"`
	Partition  int32             `json:"partition"`
	Partitions int32             `json:"partitions"`
	Replicas   int16             `json:"replicas"`
	Brokers    map[int32][]int32 `json:"brokers"`
	Configs    map[string]string `json:"configs"`
	Key        string            `json:"key"`
	Value      *string           `json:"value"`
	Offsets    map[int32]int64   `json:"offsets"`
	Instance   string            `json:"instance"`
	SessionMs  int64             `json:"session_ms"`
}

// Message is a record as the suite writes it down; bytes travel as base64, null stays null.
type Message struct {
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
}

// Header is one record header.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type verb func(ctx context.Context, seed string, r Request) (any, error)

var verbs = map[string]verb{
	"produce":       produce,
	"consume":       consume,
	"member":        member,
	"writer":        writer,
	"commit":        commit,
	"committed":     committed,
	"create":        admin(create),
	"topics":        admin(topics),
	"describe":      admin(describe),
	"configs":       admin(configs),
	"brokerConfigs": admin(brokerConfigs),
	"setConfig":     admin(setConfig),
	"grow":          admin(grow),
	"delete":        admin(remove),
	"offsets":       admin(offsets),
	"deleteRecords": admin(deleteRecords),
	"groups":        admin(groups),
	"describeGroup": admin(describeGroup),
	"deleteGroup":   admin(deleteGroup),
	"reassign":      admin(reassign),
	"reassigning":   admin(reassigning),
	"elect":         admin(elect),
}

func main() {
	switch os.Args[1] {
	case "transactions":
		transactions()
		return
	case "logins":
		logins(openFranz)
		return
	case "kafka-go-logins":
		logins(openKafkaGo)
		return
	}
	var request Request
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		fmt.Fprintln(os.Stderr, "bad request:", err)
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	result, err := verbs[os.Args[2]](ctx, os.Args[1], request)
	answer(result, err)
}

func answer(result any, err error) {
	out := map[string]any{"result": result}
	if err != nil {
		out = map[string]any{"error": err.Error()}
		var kafka *kerr.Error
		if errors.As(err, &kafka) {
			out["error"] = kafka.Message
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}

func seeds(bootstrap string) []string { return strings.Split(bootstrap, ",") }

func connect(seed string, more ...kgo.Opt) (*kgo.Client, error) {
	options := append([]kgo.Opt{kgo.SeedBrokers(seeds(seed)...), kgo.ClientID("franz")}, more...)
	return kgo.NewClient(options...)
}

func admin(act func(context.Context, *kadm.Client, Request) (any, error)) verb {
	return func(ctx context.Context, seed string, r Request) (any, error) {
		client, err := connect(seed)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		return act(ctx, kadm.NewClient(client), r)
	}
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Ask is one request of the program "transactions"; Said is the answer to it.
type Ask struct {
	ID              int              `json:"id"`
	Verb            string           `json:"verb"`
	Producer        string           `json:"producer"`
	Bootstrap       string           `json:"bootstrap"`
	TransactionalID string           `json:"transactional_id"`
	TimeoutMs       int64            `json:"timeout_ms"`
	Topic           string           `json:"topic"`
	Rows            [][2]interface{} `json:"rows"`
	Flush           bool             `json:"flush"`
	Partitions      int32            `json:"partitions"`
	Isolation       string           `json:"isolation"`
	Until           string           `json:"until"`
	Source          string           `json:"source"`
	Target          string           `json:"target"`
	Group           string           `json:"group"`
	Count           int              `json:"count"`
}

type said struct {
	ID     int    `json:"id"`
	Result any    `json:"result"`
	Error  string `json:"error,omitempty"`
	Kind   string `json:"kind,omitempty"`
}

// opened is a transactional producer that lives on between requests.
type opened struct {
	client *kgo.Client
	failed sync.Map
}

var producers sync.Map

// transactions answers requests, each a line of JSON, until its input ends.
func transactions() {
	var printing sync.Mutex
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var ask Ask
		if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
			panic(err)
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 150*time.Second)
			defer cancel()
			result, err := act(ctx, ask)
			done := said{ID: ask.ID, Result: result}
			if err != nil {
				done.Error, done.Kind = err.Error(), kind(err)
			}
			printing.Lock()
			defer printing.Unlock()
			_ = out.Encode(done)
		}()
	}
}

// kind says what the user must do.
func kind(err error) string {
	if errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) {
		return "fatal"
	}
	return "abortable"
}

func act(ctx context.Context, ask Ask) (any, error) {
	switch ask.Verb {
	case "open":
		made, err := openProducer(ctx, ask)
		producers.Store(ask.Producer, made)
		return nil, err
	case "read":
		return readAll(ctx, ask)
	case "transform":
		return nil, transform(ctx, ask)
	}
	found, _ := producers.Load(ask.Producer)
	producer := found.(*opened)
	switch ask.Verb {
	case "begin":
		producer.failed.Clear()
		return nil, producer.client.BeginTransaction()
	case "send":
		return nil, producer.send(ctx, ask)
	case "commit":
		if err := producer.client.Flush(ctx); err != nil {
			return nil, err
		}
		return nil, producer.client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		if err := producer.client.AbortBufferedRecords(ctx); err != nil {
			return nil, err
		}
		return nil, producer.client.EndTransaction(ctx, kgo.TryAbort)
	case "close":
		producer.client.Close()
	}
	return nil, nil
}

// openProducer asks for the producer id at once, as the other clients' init does.
func openProducer(ctx context.Context, ask Ask) (*opened, error) {
	client, err := connect(ask.Bootstrap,
		kgo.TransactionalID(ask.TransactionalID),
		kgo.TransactionTimeout(time.Duration(ask.TimeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	_, _, err = client.ProducerID(ctx)
	return &opened{client: client}, err
}

func (o *opened) send(ctx context.Context, ask Ask) error {
	for _, row := range ask.Rows {
		record := &kgo.Record{Topic: ask.Topic, Partition: int32(row[0].(float64)), Value: []byte(row[1].(string))}
		o.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				o.failed.Store("error", err)
			}
		})
	}
	if !ask.Flush {
		return nil
	}
	err := o.client.Flush(ctx)
	if failed, found := o.failed.Load("error"); found {
		err = failed.(error)
	}
	return err
}

func isolation(name string) kgo.IsolationLevel {
	if name == "read_committed" {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}

// readAll returns the values of each partition, up to the value "until".
func readAll(ctx context.Context, ask Ask) (any, error) {
	start := map[int32]kgo.Offset{}
	found := make([][]string, ask.Partitions)
	ended := map[int32]bool{}
	for partition := range ask.Partitions {
		start[partition] = kgo.NewOffset().AtStart()
		found[partition] = []string{}
	}
	client, err := connect(ask.Bootstrap,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{ask.Topic: start}),
		kgo.FetchIsolationLevel(isolation(ask.Isolation)),
		kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for len(ended) < len(found) {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fetches.EachRecord(func(got *kgo.Record) {
			if string(got.Value) == ask.Until {
				ended[got.Partition] = true
			} else if !ended[got.Partition] {
				found[got.Partition] = append(found[got.Partition], string(got.Value))
			}
		})
	}
	return found, nil
}

// transform copies records with their offsets; it aborts every third transaction and does it again.
func transform(ctx context.Context, ask Ask) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(seeds(ask.Bootstrap)...),
		kgo.TransactionalID(ask.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(ask.Group), kgo.ConsumeTopics(ask.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer session.Close()
	for done, turn := 0, 1; done < ask.Count; {
		fetches := session.PollRecords(ctx, 7)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(got *kgo.Record) {
			copied := &kgo.Record{Topic: ask.Target, Partition: got.Partition, Value: got.Value}
			session.Produce(ctx, copied, nil)
		})
		committed, err := session.End(ctx, kgo.TransactionEndTry(turn%3 > 0))
		if err != nil {
			return err
		}
		if committed {
			done += fetches.NumRecords()
		}
		turn++
	}
	return nil
}

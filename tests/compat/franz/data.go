package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func produce(ctx context.Context, seed string, r Request) (any, error) {
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.ProducerBatchMaxBytes(4 << 20),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(1),
	}
	if !r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := connect(seed, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(r.Messages))
	for _, m := range r.Messages {
		records = append(records, record(r.Topic, m))
	}
	return nil, client.ProduceSync(ctx, records...).FirstErr()
}

func record(topic string, m Message) *kgo.Record {
	out := &kgo.Record{Topic: topic, Key: m.Key, Value: m.Value, Partition: m.Partition}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	if m.Timestamp != nil {
		out.Timestamp = time.UnixMilli(*m.Timestamp)
	}
	return out
}

func consume(ctx context.Context, seed string, r Request) (any, error) {
	offset := kgo.NewOffset()
	switch r.Start {
	case "start":
		offset = offset.AtStart()
	case "end":
		offset = offset.AtEnd()
	case "offset":
		offset = offset.At(r.At)
	case "time":
		offset = offset.AfterMilli(r.At)
	}
	client, err := connect(seed,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: offset}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	out := []Message{}
	for len(out) < r.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(got *kgo.Record) { out = append(out, message(got)) })
	}
	return out[:r.Count], nil
}

func message(got *kgo.Record) Message {
	at := got.Timestamp.UnixMilli()
	out := Message{Key: got.Key, Value: got.Value, Timestamp: &at, Partition: got.Partition, Offset: got.Offset}
	for _, h := range got.Headers {
		out.Headers = append(out.Headers, Header{Key: h.Key, Value: h.Value})
	}
	return out
}

// member joins a group, prints what it is assigned and what it reads, and commits what it printed.
func member(_ context.Context, seed string, r Request) (any, error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	owned := map[int32]bool{}
	show := func() {
		list := []int32{}
		for p := range owned {
			list = append(list, p)
		}
		sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
		event(map[string]any{"assigned": list})
	}
	mark := func(have bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			for _, p := range changed[r.Topic] {
				if have {
					owned[p] = true
				} else {
					delete(owned, p)
				}
			}
			show()
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(r.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Second), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(mark(true)), kgo.OnPartitionsRevoked(mark(false)), kgo.OnPartitionsLost(mark(false)),
		kgo.FetchMaxWait(500 * time.Millisecond),
	}
	if r.Instance != "" {
		// The default balancer puts what it owned into its subscription, so that a member which
		// comes back empty-handed looks changed and makes a rebalance; with range it does not.
		options = append(options, kgo.InstanceID(r.Instance), kgo.Balancers(kgo.RangeBalancer()))
	}
	client, err := connect(seed, options...)
	if err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.Canceled) {
				event(map[string]any{"error": e.Err.Error()})
			}
		}
		read := [][2]int64{}
		fetches.EachRecord(func(got *kgo.Record) { read = append(read, [2]int64{int64(got.Partition), got.Offset}) })
		if len(read) > 0 {
			_ = client.CommitUncommittedOffsets(context.Background())
			event(map[string]any{"records": read})
		}
	}
	client.Close()
	return nil, nil
}

func event(e map[string]any) { _ = json.NewEncoder(os.Stdout).Encode(e) }

func commit(ctx context.Context, seed string, r Request) (any, error) {
	return admin(func(ctx context.Context, a *kadm.Client, r Request) (any, error) {
		all := kadm.Offsets{}
		for p, at := range r.Offsets {
			all.AddOffset(r.Topic, p, at, -1)
		}
		done, err := a.CommitOffsets(ctx, r.Group, all)
		return nil, errors.Join(err, done.Error())
	})(ctx, seed, r)
}

func committed(ctx context.Context, seed string, r Request) (any, error) {
	return admin(func(ctx context.Context, a *kadm.Client, r Request) (any, error) {
		all, err := a.FetchOffsets(ctx, r.Group)
		out := map[int32]int64{}
		for p, o := range all[r.Topic] {
			out[p] = o.At
		}
		return out, errors.Join(err, all.Error())
	})(ctx, seed, r)
}

// writer writes numbers to partition 0, each once, and prints what became of each.
func writer(_ context.Context, seed string, r Request) (any, error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := connect(seed, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for number := 0; ctx.Err() == nil; number++ {
		record := &kgo.Record{Topic: r.Topic, Value: []byte(strconv.Itoa(number))}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				event(map[string]any{"failed": err.Error()})
			} else {
				event(map[string]any{"acknowledged": []int{number}})
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil, client.Flush(context.Background())
}

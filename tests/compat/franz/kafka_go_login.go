package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

type kafkaGoSession struct {
	seeds     []string
	secured   *tls.Config
	mechanism sasl.Mechanism
	transport *kafka.Transport
	writer    *kafka.Writer
	reader    *kafka.Reader
}

func openKafkaGo(ask LoginAsk, secured *tls.Config) (session, error) {
	mechanism, err := mechanismOf(ask)
	if err != nil {
		return nil, err
	}
	transport := &kafka.Transport{TLS: secured, SASL: mechanism}
	return &kafkaGoSession{
		seeds: seeds(ask.Bootstrap), secured: secured, mechanism: mechanism, transport: transport,
		writer: &kafka.Writer{
			Addr: kafka.TCP(seeds(ask.Bootstrap)...), Transport: transport, BatchTimeout: time.Millisecond,
			RequiredAcks: kafka.RequireAll,
		},
	}, nil
}

func mechanismOf(ask LoginAsk) (sasl.Mechanism, error) {
	switch ask.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: ask.User, Password: ask.Password}, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, ask.User, ask.Password)
	case "SCRAM-SHA-512":
		return scram.Mechanism(scram.SHA512, ask.User, ask.Password)
	}
	return nil, nil
}

func (s *kafkaGoSession) produce(ctx context.Context, topic, value string) error {
	return onOpenConnection(ctx, func() error {
		return s.writer.WriteMessages(ctx, kafka.Message{Topic: topic, Value: []byte(value)})
	})
}

// kafka-go repeats what a lost connection failed, except when it closed the connection itself, at
// the end of a session, between taking it from its pool and writing to it.
func onOpenConnection(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), net.ErrClosed.Error()) {
			return err
		}
	}
}

func (s *kafkaGoSession) poll(ctx context.Context, topic, group string) ([]string, error) {
	if s.reader == nil {
		s.reader = kafka.NewReader(kafka.ReaderConfig{
			Brokers: s.seeds, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: pollFor,
			Dialer: &kafka.Dialer{TLS: s.secured, SASLMechanism: s.mechanism, Timeout: loginFor},
		})
	}
	soon, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	found := []string{}
	for {
		got, err := s.reader.FetchMessage(soon)
		if errors.Is(err, context.DeadlineExceeded) {
			return found, nil
		}
		if err == nil {
			err = onOpenConnection(ctx, func() error { return s.reader.CommitMessages(ctx, got) })
		}
		if err != nil {
			return nil, err
		}
		found = append(found, string(got.Value))
	}
}

func (s *kafkaGoSession) brokers(ctx context.Context) ([]int32, error) {
	client := &kafka.Client{Addr: s.writer.Addr, Transport: s.transport}
	var told *kafka.MetadataResponse
	err := onOpenConnection(ctx, func() (err error) {
		told, err = client.Metadata(ctx, &kafka.MetadataRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	ids := []int32{}
	for _, broker := range told.Brokers {
		ids = append(ids, int32(broker.ID))
	}
	return ids, nil
}

func (s *kafkaGoSession) close() {
	_ = s.writer.Close()
	if s.reader != nil {
		_ = s.reader.Close()
	}
	s.transport.CloseIdleConnections()
}

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type franzSession struct {
	options  []kgo.Opt
	seed     string
	producer *kgo.Client
	consumer *kgo.Client
}

func openFranz(ask LoginAsk, secured *tls.Config) (session, error) {
	options := []kgo.Opt{kgo.DialTLSConfig(secured)}
	asked := scram.Auth{User: ask.User, Pass: ask.Password, IsToken: ask.Delegated}
	switch ask.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: ask.User, Pass: ask.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(asked.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(asked.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			return fetchToken(ctx, ask)
		})))
	}
	producer, err := connect(ask.Bootstrap, options...)
	return &franzSession{options: options, seed: ask.Bootstrap, producer: producer}, err
}

func fetchToken(ctx context.Context, ask LoginAsk) (oauth.Auth, error) {
	form := strings.NewReader("grant_type=client_credentials")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, ask.Endpoint, form)
	if err != nil {
		return oauth.Auth{}, err
	}
	request.SetBasicAuth(ask.User, ask.Password)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return oauth.Auth{}, err
	}
	defer answer.Body.Close()
	var granted struct {
		Token string `json:"access_token"`
	}
	err = json.NewDecoder(answer.Body).Decode(&granted)
	return oauth.Auth{Token: granted.Token}, err
}

func (s *franzSession) produce(ctx context.Context, topic, value string) error {
	return s.producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr()
}

func (s *franzSession) poll(ctx context.Context, topic, group string) ([]string, error) {
	if s.consumer == nil {
		reading := []kgo.Opt{
			kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchMaxWait(pollFor),
		}
		made, err := connect(s.seed, append(reading, s.options...)...)
		if err != nil {
			return nil, err
		}
		s.consumer = made
	}
	soon, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	found := []string{}
	fetches := s.consumer.PollFetches(soon)
	fetches.EachRecord(func(got *kgo.Record) { found = append(found, string(got.Value)) })
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			return nil, failed.Err
		}
	}
	return found, nil
}

func (s *franzSession) brokers(ctx context.Context) ([]int32, error) {
	told, err := kadm.NewClient(s.producer).ListBrokers(ctx)
	return told.NodeIDs(), err
}

func (s *franzSession) close() {
	s.producer.Close()
	if s.consumer != nil {
		s.consumer.Close()
	}
}

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// LoginAsk is one request of the programs "logins"; the answer is a `said`.
type LoginAsk struct {
	ID          int    `json:"id"`
	Verb        string `json:"verb"`
	Session     string `json:"session"`
	Bootstrap   string `json:"bootstrap"`
	Protocol    string `json:"protocol"`
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Endpoint    string `json:"token_endpoint"`
	Delegated   bool   `json:"delegated"`
	Topic       string `json:"topic"`
	Group       string `json:"group"`
	Value       string `json:"value"`
}

// session is a client that has logged in; its producer and consumer are kept until it is closed.
type session interface {
	produce(ctx context.Context, topic, value string) error
	poll(ctx context.Context, topic, group string) ([]string, error)
	brokers(ctx context.Context) ([]int32, error)
	close()
}

const (
	pollFor  = 100 * time.Millisecond
	loginFor = 100 * time.Second
)

// logins answers requests, each a line of JSON, until its input ends.
func logins(open func(LoginAsk, *tls.Config) (session, error)) {
	var printing sync.Mutex
	var sessions sync.Map
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var ask LoginAsk
		if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
			panic(err)
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), loginFor)
			defer cancel()
			done := said{ID: ask.ID}
			result, err := logIn(ctx, ask, open, &sessions)
			if err != nil {
				done.Error = err.Error()
			}
			done.Result = result
			printing.Lock()
			defer printing.Unlock()
			_ = out.Encode(done)
		}()
	}
}

func logIn(ctx context.Context, ask LoginAsk, open func(LoginAsk, *tls.Config) (session, error), sessions *sync.Map) (any, error) {
	if ask.Verb == "open" {
		secured, err := tlsOf(ask)
		if err != nil {
			return nil, err
		}
		made, err := open(ask, secured)
		sessions.Store(ask.Session, made)
		return nil, err
	}
	found, _ := sessions.Load(ask.Session)
	one := found.(session)
	switch ask.Verb {
	case "produce":
		return nil, one.produce(ctx, ask.Topic, ask.Value)
	case "poll":
		return one.poll(ctx, ask.Topic, ask.Group)
	case "brokers":
		return one.brokers(ctx)
	case "close":
		one.close()
		return nil, nil
	}
	return nil, fmt.Errorf("there is no verb %q", ask.Verb)
}

func tlsOf(ask LoginAsk) (*tls.Config, error) {
	trusted, err := os.ReadFile(ask.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if ask.Certificate != "" {
		own, err := tls.LoadX509KeyPair(ask.Certificate, ask.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

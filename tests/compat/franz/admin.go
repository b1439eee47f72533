package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
)

func create(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	configs := map[string]*string{}
	for key, value := range r.Configs {
		configs[key] = &value
	}
	done, err := a.CreateTopic(ctx, r.Partitions, r.Replicas, configs, r.Topic)
	return nil, errors.Join(err, done.Err)
}

func topics(ctx context.Context, a *kadm.Client, _ Request) (any, error) {
	all, err := a.ListTopics(ctx)
	return all.Names(), err
}

func describe(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	all, err := a.ListTopics(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	out := map[int32]any{}
	for _, p := range all[r.Topic].Partitions {
		out[p.Partition] = map[string]any{"leader": p.Leader, "replicas": p.Replicas, "isr": p.ISR}
	}
	return out, all.Error()
}

func values(all kadm.ResourceConfigs, err error) (any, error) {
	out := map[string]*string{}
	for _, resource := range all {
		err = errors.Join(err, resource.Err)
		for _, config := range resource.Configs {
			out[config.Key] = config.Value
		}
	}
	return out, err
}

func configs(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	return values(a.DescribeTopicConfigs(ctx, r.Topic))
}

func brokerConfigs(ctx context.Context, a *kadm.Client, _ Request) (any, error) {
	brokers, err := a.ListBrokers(ctx)
	if err != nil {
		return nil, err
	}
	return values(a.DescribeBrokerConfigs(ctx, brokers[0].NodeID))
}

func setConfig(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: r.Key, Value: r.Value}
	if r.Value == nil {
		change.Op = kadm.DeleteConfig
	}
	done, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, r.Topic)
	for _, one := range done {
		err = errors.Join(err, one.Err)
	}
	return nil, err
}

func grow(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	done, err := a.UpdatePartitions(ctx, int(r.Partitions), r.Topic)
	return nil, errors.Join(err, done.Error())
}

func remove(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	done, err := a.DeleteTopics(ctx, r.Topic)
	return nil, errors.Join(err, done.Error())
}

func offsets(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	var all kadm.ListedOffsets
	var err error
	switch r.Start {
	case "start":
		all, err = a.ListStartOffsets(ctx, r.Topic)
	case "end":
		all, err = a.ListEndOffsets(ctx, r.Topic)
	case "time":
		all, err = a.ListOffsetsAfterMilli(ctx, r.At, r.Topic)
	case "latest-time":
		all, err = a.ListMaxTimestampOffsets(ctx, r.Topic)
	}
	out := map[int32]int64{}
	all.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	return out, errors.Join(err, all.Error())
}

func deleteRecords(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	before := kadm.Offsets{}
	for p, at := range r.Offsets {
		before.AddOffset(r.Topic, p, at, -1)
	}
	done, err := a.DeleteRecords(ctx, before)
	out := map[int32]int64{}
	for _, one := range done[r.Topic] {
		out[one.Partition] = one.LowWatermark
	}
	return out, errors.Join(err, done.Error())
}

func groups(ctx context.Context, a *kadm.Client, _ Request) (any, error) {
	all, err := a.ListGroups(ctx)
	return all.Groups(), err
}

func describeGroup(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	all, err := a.DescribeGroups(ctx, r.Group)
	if err != nil {
		return nil, err
	}
	one := all[r.Group]
	return map[string]any{"state": one.State, "members": len(one.Members)}, one.Err
}

func deleteGroup(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	done, err := a.DeleteGroups(ctx, r.Group)
	return nil, errors.Join(err, done.Error())
}

func reassign(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	var moves kadm.AlterPartitionAssignmentsReq
	for p, brokers := range r.Brokers {
		moves.Assign(r.Topic, p, brokers)
	}
	done, err := a.AlterPartitionAssignments(ctx, moves)
	return nil, errors.Join(err, done.Error())
}

func partitionsOf(ctx context.Context, a *kadm.Client, topic string) (kadm.TopicsSet, error) {
	all, err := a.ListTopics(ctx, topic)
	return all.TopicsSet(), err
}

func reassigning(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	all, err := partitionsOf(ctx, a, r.Topic)
	if err != nil {
		return nil, err
	}
	found, err := a.ListPartitionReassignments(ctx, all)
	out := []int32{}
	for p := range found[r.Topic] {
		out = append(out, p)
	}
	return out, err
}

func elect(ctx context.Context, a *kadm.Client, r Request) (any, error) {
	var wanted kadm.TopicsSet
	wanted.Add(r.Topic, r.Partition)
	done, err := a.ElectLeaders(ctx, kadm.ElectPreferredReplica, wanted)
	return nil, errors.Join(err, done[r.Topic][r.Partition].Err)
}
